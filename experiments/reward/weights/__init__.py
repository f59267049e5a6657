"""Do weights that change by phase, or that anchors choose, beat weights that stay?"""
