"""Does a run notice that its judge is gamed, mend it, and recover?"""
