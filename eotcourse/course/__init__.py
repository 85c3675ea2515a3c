"""What the pages of the book need and the mathematics does not: printing, figures, exercises."""

from .exercises import check
from .report import fails, holds, publish, show, use_style

__all__ = ["check", "fails", "holds", "publish", "show", "use_style"]
