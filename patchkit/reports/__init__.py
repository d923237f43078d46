"""Evidence as reports that people and programs read: text, Markdown, JUnit, SARIF, one HTML page."""
