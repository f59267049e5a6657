"""Scenes, instructions and graded candidates whose worth is known, made to order and written as files.

Nothing that judges or evolves imports this package (a test says so): what a judge learns, it learns from files of images and
preferences, as it would from people's.
"""
