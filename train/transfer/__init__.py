"""Fine-tuning on the tasks of `data.tasks`, also with frozen features."""
