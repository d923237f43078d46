"""From the words of a patch to exact spans of upstream's code, or an error that shows the nearest places."""
