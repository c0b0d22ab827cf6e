"""A trainer on Modal, with the sidecar beside it in one container."""
