"""Formulas as MathML, which browsers draw by themselves: no script, no network, no LaTeX."""

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}


def inline(self, node):
    self.body.append(_mathml(node))
    raise SkipNode


def block(self, node):
    self.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>')
    raise SkipNode


def _mathml(node, **how):
    return tex2mathml(node.astext().replace(r"\log ", r"\log\, "), **how)
