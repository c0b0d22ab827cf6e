"""What trainers had that are not there any more: totals never go back."""

from __future__ import annotations

from .delivery import Delivery
from .records import MAX_AGGREGATE
from .series import Phases, Series
from .trainer import Trainer


class Former:
    """What trainers had that are not there any more."""

    def __init__(self) -> None:
        self.phases: Phases = {}
        self.delivery = Delivery()

    def add(self, trainer: Trainer) -> None:
        """It has come to its end. A phase that there is no room for is counted."""
        self.count(trainer.delivery.snapshot())
        for name, series in trainer.records.aggregate.lifetime().items():
            if name in self.phases or len(self.phases) < MAX_AGGREGATE:
                self.phases.setdefault(name, Series()).merge(series)
            else:
                self.count(Delivery(series_refused=series.count))

    def count(self, delivery: Delivery) -> None:
        """Events that came to this end."""
        self.delivery = self.delivery.plus(delivery)
