// Typesets TeX for book/_ext/mathsvg.py.
//   node mathsvg.cjs PATH/TO/mathjax/es5
// Standard input, one JSON value a line: first the macros, then one page a line:
// [{tex, display}, ...]. Each page is answered by one line:
// {formulas: [{svg, mathml} or {error}, ...], glyphs: "<defs>...</defs>"}.
'use strict';
const path = require('path');
const readline = require('readline');

// No package that defines macros inside formulas: a macro of one page must not be
// known, by luck of the order, on another. No noerrors or noundefined either: they
// turn a mistake into red text that nobody sees.
const PACKAGES = ['base', 'ams', 'boldsymbol', 'cancel', 'configmacros', 'mathtools'];

async function start(es5, macros) {
  return require(path.join(es5, 'node-main.js')).init({
    loader: {
      load: ['input/tex-base', 'output/svg',
        ...PACKAGES.slice(1).map((name) => `[tex]/${name}`)],
    },
    tex: { packages: PACKAGES, macros, tags: 'none', formatError: (_, err) => { throw err; } },
    svg: { fontCache: 'global' },
  });
}

// What only MathJax's own scripts use would double the size of the page.
const lean = (html) => html
  .replace(/ (?:data-(?:mml-node|mjx-[a-z-]+|c)|xmlns(?::xlink)?|role)="[^"]*"/g, '')
  .replace(/xlink:href=/g, 'href=')
  .replace(/>\s+</g, '><');

function typeset(MathJax, { tex, display }) {
  const adaptor = MathJax.startup.adaptor;
  try {
    MathJax.texReset();
    const svg = adaptor.innerHTML(MathJax.tex2svg(tex, { display }));
    const stray = svg.match(/<text[^>]*>([^<]*)</);
    if (stray) return { error: `the character ${stray[1]} is not in the maths font` };
    return {
      svg: lean(svg).replace('<svg ', '<svg aria-hidden="true" '),
      mathml: lean(MathJax.tex2mml(tex, { display })).trim(),
    };
  } catch (err) {
    return { error: err.message };
  }
}

async function main() {
  let MathJax = null;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (MathJax === null) {
      MathJax = await start(process.argv[2], JSON.parse(line));
      continue;
    }
    const { adaptor, document } = MathJax.startup;
    const formulas = JSON.parse(line).map((formula) => typeset(MathJax, formula));
    const glyphs = lean(adaptor.outerHTML(document.outputJax.fontCache.getCache()));
    document.outputJax.fontCache.clearCache();
    process.stdout.write(`${JSON.stringify({ formulas, glyphs })}\n`);
  }
}

main().catch((err) => {
  process.stderr.write(`${err.stack}\n`);
  process.exit(1);
});
