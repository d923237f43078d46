"""From a selector and a template to bytes in upstream's file, confirmed by parsing the result."""
