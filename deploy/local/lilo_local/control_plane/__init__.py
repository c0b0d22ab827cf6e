"""What tenants speak to: their models, on whichever trainer they are, and their timing."""
