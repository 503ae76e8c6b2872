"""Comparisons with other trainers on the same environments, models and numbers of turns."""
