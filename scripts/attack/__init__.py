"""The groups of scripts/attack.py, one idea a file, and what they share."""
