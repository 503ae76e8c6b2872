"""A batch without a critic: no values, no bootstrap values, no returns."""

from storage.batch import Batch


class CriticlessBatch(Batch):
    COMPUTED = ("logps", "ref_logps")

    def _pad(self) -> None:
        super()._pad()
        self.values = None

    def _score_ends(self, actor_critic) -> None:
        """Nothing is bootstrapped."""

    def next_values(self) -> None:
        return None
