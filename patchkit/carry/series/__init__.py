"""What a user writes: patches, profiles, the order of the series and the lock, read and validated."""
