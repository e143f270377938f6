"""A hint for whoever gives an option by the name that it has in another tool."""

from collections.abc import Sequence

from nvil.errors import UsageError

OTHER_TOOLS = {
    "batch": "batch_size",
    "batchsize": "batch_size",
    "bs": "batch_size",
    "checkpoint_every": "checkpoint_updates",
    "clip_norm": "clip",
    "dataset": "data",
    "early_stopping": "patience",
    "ema": "average",
    "epoch": "updates",
    "epochs": "updates",
    "eval_every": "report_every",
    "grad_clip": "clip",
    "hidden_dim": "hidden",
    "hidden_size": "hidden",
    "input": "data",
    "iterations": "updates",
    "layers": "hidden",
    "log_every": "report_every",
    "lr": "learning_rate",
    "lr_decay": "schedule",
    "lr_schedule": "schedule",
    "lr_scheduler": "schedule",
    "max_features": "words",
    "max_grad_norm": "clip",
    "max_steps": "updates",
    "n": "count",
    "num_epochs": "updates",
    "num_samples": "samples",
    "output": "out",
    "output_dir": "out",
    "random_state": "seed",
    "rate": "learning_rate",
    "save_dir": "out",
    "scheduler": "schedule",
    "steps": "updates",
    "units": "hidden",
    "val": "validation",
    "val_size": "validation",
    "vocab": "vocabulary",
    "vocab_size": "words",
    "wd": "weight_decay",
}
"""What other tools call our options, where the names are too far apart to be taken for a slip."""


def hint(words: Sequence[str], options: Sequence[str]) -> None:
    """Refuse an option that another tool has with the name that it has here."""
    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        ours = OTHER_TOOLS.get(name)
        if word.startswith("--") and name not in options and ours in options:
            epochs = ", counted in minibatches" if "epoch" in name else ""
            raise UsageError(f"Unknown option '--{name.replace('_', '-')}'; did you mean `{ours}`{epochs}?")
