"""A complete deployment on one machine: a real multi-LoRA trainer, its timing sidecar, a control
plane and its tenants, each a process of its own. ``python -m lilo_local.demo`` runs it."""
