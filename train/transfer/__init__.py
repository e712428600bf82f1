"""Fine-tuning and frozen features, on the tasks of `data.tasks`."""
