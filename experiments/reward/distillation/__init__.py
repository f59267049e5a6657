"""What does a fast student of a judge save, and at what risk?"""
