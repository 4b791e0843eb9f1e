"""The style sheet of the page: one column, in the light or dark colours that the reader's system prefers.

Text keeps to a readable width, figures and tables use the whole page. On paper everything is light, folded text is
open, and tables are as wide as the sheet. It needs no web font and no other file.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fdfdfb; --ink: #24262b; --muted: #676b74; --line: #e3e4e6; --grid: #d9dbdf; --soft: #f4f4f1;
  --accent: #2c5fa8; --warn: #9a5b00; --claim: #f2eefa; --print: #f6f1e6; --shade: #00000026;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #16181c; --ink: #e4e5e8; --muted: #9da1aa; --line: #2e3138; --grid: #383c44; --soft: #1d2025;
    --accent: #86aee8; --warn: #e0a95a; --claim: #24212f; --print: #292419; --shade: #000000a0;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 2.5rem 1.1rem 5rem; max-width: 74rem; background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.6 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif;
  overflow-wrap: break-word;
}
h1, h2, h3, table, nav, figure, summary, .legend, .note, .warning, .caption, .muted, .tip, footer {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
}
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 1rem; text-wrap: balance; }
h2 { font-size: 1.3rem; letter-spacing: -0.01em; line-height: 1.25; margin: 0 0 1rem; }
sub, sup { line-height: 0; font-size: 0.75em; }
h3 { font-size: 1.02rem; margin: 1.6rem 0 0.4rem; }
p, ul, ol { max-width: 44rem; margin: 0 0 1rem; }
.lead { font-size: 1.15rem; line-height: 1.55; }
section { margin-top: 3.6rem; padding-top: 1.6rem; border-top: 1px solid var(--line); }
main > section:first-child { margin-top: 1.4rem; }
a { color: var(--accent); text-underline-offset: 0.15em; }
nav { margin-top: 1.6rem; font-size: 0.9rem; line-height: 1.9; }
nav a { margin-right: 1.1rem; text-decoration: none; white-space: nowrap; }
nav a:hover { text-decoration: underline; }
@media (min-width: 40.01rem) { nav.scroll { background: none; } }
code { font: 0.88em ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }
.scroll { overflow-x: auto; margin: 1.2rem 0 0.6rem; max-width: 100%; -webkit-overflow-scrolling: touch;
  background: linear-gradient(to right, var(--paper) 40%, transparent) left / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to right, var(--shade), transparent) left / 0.8rem 100% no-repeat scroll,
    linear-gradient(to left, var(--shade), transparent) right / 0.8rem 100% no-repeat scroll; }
.sticky th:first-child, .sticky td:first-child { position: sticky; left: 0; background: var(--paper); }
.sticky td:first-child { max-width: min(16rem, 38vw); overflow-wrap: anywhere; }
.scroll:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; font-size: 0.86rem; line-height: 1.4; font-variant-numeric: tabular-nums; }
th, td { padding: 0.42rem 0.62rem; text-align: right; vertical-align: baseline; white-space: nowrap; }
th { font-weight: 600; color: var(--muted); border-bottom: 1px solid var(--line); }
td { border-bottom: 1px solid var(--line); }
th.text, td.text { text-align: left; }
td.text { white-space: normal; min-width: 5.5rem; }
td.text:has(code) { overflow-wrap: anywhere; }
th.name, td.name { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
.bands th { text-align: left; border-bottom: 0; padding-bottom: 0; font-weight: 500; font-size: 0.8rem; }
.bands th:not(:first-child) { border-left: 1px solid var(--line); }
td.ours { font-weight: 600; color: var(--ink); }
td.claim, th.claim { background: var(--claim); font-style: italic; font-weight: 400; }
td.paper, th.paper { background: var(--print); font-style: italic; font-weight: 400; color: var(--muted); }
.caption, figcaption { font-size: 0.88rem; line-height: 1.5; color: var(--muted); max-width: 46rem; }
.caption { margin: 0 0 1.6rem; }
figure { margin: 1.6rem 0 2rem; }
figcaption { margin-top: 0.6rem; }
.panels { display: grid; gap: 0.4rem 1.2rem; align-items: start; }
.panels.many { grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); }
.panels.many .panel { max-width: 25rem; }
.panels.pair { grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.panels .broad { display: none; }
.panels .narrow { max-width: 36rem; }
@media (min-width: 44rem) { .panels .broad { display: block; } .panels .narrow { display: none; } }
.panel svg { display: block; width: 100%; height: auto; overflow: visible; color: var(--ink); }
.panel text {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
}
.panel[tabindex]:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.at { fill: var(--paper); stroke-width: 2.5; pointer-events: none; }
.tip { position: absolute; top: 0; left: 0; z-index: 2; max-width: min(24rem, 92vw); padding: 0.35rem 0.6rem;
  font-size: 0.82rem; line-height: 1.4; font-variant-numeric: tabular-nums; pointer-events: none;
  color: var(--ink); background: var(--soft); border: 1px solid var(--grid); border-radius: 0.3rem; }
.tip[hidden] { display: none; }
.tip .head { color: var(--muted); }
.tip .dot { display: inline-block; width: 0.6em; height: 0.6em; margin-right: 0.45em; border-radius: 50%; }
.legend { list-style: none; padding: 0; margin: 0 0 0.7rem; display: flex; flex-wrap: wrap; gap: 0.2rem 1.3rem; }
.legend { font-size: 0.86rem; max-width: none; }
.swatch { display: inline-block; width: 1.5rem; height: 0.25rem; margin-right: 0.5rem; vertical-align: 0.2em; }
details { border-bottom: 1px solid var(--line); }
section > details:last-child { border-bottom: 0; }
details > :not(summary):last-child { margin-bottom: 1.8rem; }
details + p { margin-top: 1rem; }
summary { cursor: pointer; padding: 0.7rem 0; font-size: 0.95rem; line-height: 1.45; }
summary::marker { color: var(--muted); }
details.more, section > details.more:last-child { border: 0; }
details.more > summary { display: inline-block; padding: 0.1rem 0; font-size: 0.85rem; color: var(--accent); }
details.more > p, .caption details.more > p { margin: 0.3rem 0 0.8rem; }
p + details.more { margin: -0.7rem 0 1rem; }
.note { font-size: 0.9rem; color: var(--muted); }
.warning { font-size: 0.92rem; border-left: 3px solid var(--warn); padding-left: 0.8rem; }
.small { display: block; font-size: 0.85em; font-weight: 400; color: var(--muted); }
.muted { color: var(--muted); font-weight: 400; }
.mark { color: var(--warn); font-size: 0.85em; }
footer { margin-top: 4rem; font-size: 0.85rem; color: var(--muted); }
@media (max-width: 40rem) {
  body { padding-top: 1.6rem; font-size: 1rem; }
  h1 { font-size: 1.55rem; }
  .lead { font-size: 1.06rem; }
  nav { white-space: nowrap; }
  th, td { padding: 0.38rem 0.5rem; }
}
@media screen and (max-width: 40rem) {
  .stacked table, .stacked tbody, .stacked td { display: block; }
  .stacked thead { display: none; }
  .stacked tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(5.2rem, 1fr)); gap: 0 0.4rem;
    padding: 0.6rem 0; border-bottom: 1px solid var(--line); }
  .stacked td, .stacked td.text { border: 0; padding: 0.15rem 0.3rem 0.15rem 0; text-align: left; min-width: 0;
    white-space: normal; overflow-wrap: anywhere; }
  .stacked td::before { content: attr(data-label); display: block; font: 400 0.74rem/1.3 system-ui, sans-serif;
    color: var(--muted); }
  .stacked td:first-child { grid-column: 1 / -1; order: -2; position: static; max-width: none; font-weight: 600; }
  .stacked td:first-child::before { display: none; }
  .stacked td.ours { order: -1; }
  .stacked td.claim { grid-column: 1 / -1; padding-left: 0.3rem; }
}
@media print {
  @page { margin: 14mm 12mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .tip, summary::marker { display: none; }
  details::details-content { content-visibility: visible; display: block; }
  details.more > summary { display: none; }
  details > summary { list-style: none; }
  section { margin-top: 1.6rem; padding-top: 0.8rem; }
  h2, h3, summary, .legend { break-after: avoid; }
  figure, .panels, .panel, tr, .legend li { break-inside: avoid; }
  thead { display: table-header-group; }
  .panels.many { grid-template-columns: repeat(3, 1fr); }
  .panels.pair { grid-template-columns: repeat(2, 1fr); }
  .panels .broad { display: block; }
  .panels .narrow { display: none; }
  .scroll { overflow: visible; background: none; }
  .scroll table { width: 100%; font-size: 7.5pt; }
  th, td, td.text { padding: 0.15rem 0.25rem; white-space: normal; overflow-wrap: anywhere; min-width: 0; }
  th, td:not(.text, .name) { overflow-wrap: normal; }
  .sticky th:first-child, .sticky td:first-child { position: static; max-width: 12rem; }
  a { color: inherit; text-decoration: none; }
}
"""
