"""What one slow worker costs the others."""
