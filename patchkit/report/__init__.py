"""What the gates found, for people and programs: text, Markdown, JUnit, SARIF and HTML."""
