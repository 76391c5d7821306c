"""Results in the formats of platforms."""
