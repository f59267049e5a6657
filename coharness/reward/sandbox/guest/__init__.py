"""What runs inside a process layer, beside the foreign code: standard library alone, and no import of coharness.

The folder is shown to the guest read-only and imported there as a package named `guest`, which is why its modules refer to
each other relatively. The host imports `plain` from here too, so that both sides speak one encoding.
"""
