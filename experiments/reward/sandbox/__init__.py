"""What a sandbox layer costs, and whether it ever finds right code wrong."""
