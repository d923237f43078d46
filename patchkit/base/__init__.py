"""What every package stands on: errors, files, processes, text, the reporter, jobs."""
