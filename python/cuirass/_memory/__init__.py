"""Parts of the memory interface that are data, or sets over a driver's state."""
