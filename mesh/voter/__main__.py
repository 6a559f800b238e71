"""`python -m mesh.voter`: tied to its parent before anything else is imported or opened."""

from mesh.voter.parent import tie_to_parent

if __name__ == "__main__":
    tie_to_parent()
    from mesh.voter.process import main

    raise SystemExit(main())
