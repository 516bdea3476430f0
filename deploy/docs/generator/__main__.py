"""Write every generated page below deploy/docs/reference."""

from deploy.docs.generator.pages import BY_HAND, REFERENCE, pages

if __name__ == "__main__":
    wanted = pages()
    for path in [*REFERENCE.rglob("*.md"), *REFERENCE.rglob("*.json")]:
        if path not in BY_HAND and path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
