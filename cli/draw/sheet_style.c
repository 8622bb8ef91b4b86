/* The sheet's style: two sets of colours, and the steps of the scale. */
#include "cli/draw/scale.h"
#include "cli/draw/sheet_parts.h"

static const char rules[] =
    ":root{--page:#fbfaf8;--card:#fff;--ink:#1d1a26;--soft:#676273;--line:#e4e0e8;--accent:#6a3aa2;--bad:#b3261e;"
    "--night:#12132a}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#0f0e15;--card:#18161f;--ink:#eeebf4;--soft:#a29cb0;"
    "--line:#2d2a37;--accent:#ffb27d;--bad:#ff8f85}}\n"
    "*{box-sizing:border-box}\n"
    "html{scroll-behavior:smooth}\n"
    "body{margin:0 auto;max-width:84rem;padding:clamp(1rem,3vw,2.5rem);background:var(--page);color:var(--ink);"
    "font:1rem/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",sans-serif}\n"
    "h1{margin:0 0 .5rem;font-size:clamp(1.5rem,4vw,2.3rem);line-height:1.15;letter-spacing:-.02em}\n"
    "h2{margin:0;font-size:1.25rem;letter-spacing:-.01em}\n"
    "h2 small{font-weight:400;color:var(--soft)}\n"
    "p{margin:.35rem 0 0;max-width:68ch}\n"
    "dl{display:flex;flex-wrap:wrap;gap:.25rem 2rem;margin:0}\n"
    "dl div{display:flex;gap:.6rem}\n"
    "dt,figcaption small,.answer p,.scale{color:var(--soft)}\n"
    "dd{margin:0}\n"
    "figure{margin:0}\n"
    "section,nav,article{margin-top:1.5rem}\n"
    "section,article{padding:clamp(.9rem,2.2vw,1.6rem);background:var(--card);border:1px solid var(--line);"
    "border-radius:.9rem}\n"
    "svg{display:block;width:100%;height:auto}\n"
    "svg path{shape-rendering:crispEdges}\n"
    ".curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:1rem 2rem}\n"
    ".curves figcaption{font-weight:600}\n"
    ".chart{max-width:27rem}\n"
    ".chart text{font-size:11px;fill:var(--soft)}\n"
    ".chart .last{font-size:13px;font-weight:700;fill:var(--ink)}\n"
    ".chart .grid{stroke:var(--line)}\n"
    ".chart .line{fill:none;stroke:var(--accent);stroke-width:2;stroke-linejoin:round;shape-rendering:auto}\n"
    ".chart circle{fill:var(--accent)}\n"
    ".legend{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem 2.5rem;"
    "align-items:center}\n"
    ".scale{display:grid;grid-template-columns:1fr auto;gap:.4rem;font-size:.9rem}\n"
    ".scale svg{grid-column:1/-1;height:1.6rem;border-radius:.4rem;background:var(--night)}\n"
    "nav{display:flex;flex-wrap:wrap;gap:.5rem}\n"
    "nav a{width:3rem;border-radius:.4rem}\n"
    ".picture,.map{background:var(--night);border-radius:.4rem;color:#fff}\n"
    ".ink{fill:#fff}\n"
    "article{display:grid;grid-template-columns:minmax(0,17rem) minmax(0,1fr);gap:1.5rem "
    "2.2rem;scroll-margin-top:1rem}\n"
    ".answer{align-self:start;display:grid;gap:1rem;position:sticky;top:1rem}\n"
    ".bars{list-style:none;margin:.8rem 0 0;padding:0;font-size:.9rem;font-variant-numeric:tabular-nums}\n"
    ".bars li{display:grid;grid-template-columns:1.2rem 1fr 5rem 2.4rem;gap:.5rem;align-items:center;"
    "color:var(--soft)}\n"
    ".bars b{font-weight:400}\n"
    ".bars .bar{height:.7rem;border-radius:.2rem;background:var(--line);overflow:hidden}\n"
    ".bar span{display:block;height:100%;background:var(--soft)}\n"
    ".bars .share{text-align:right;white-space:nowrap}\n"
    ".bars em{font-style:normal;font-size:.8rem}\n"
    ".bars .best{color:var(--ink);font-weight:700}\n"
    ".bars .best b{font-weight:700}\n"
    ".bars .best .bar span{background:var(--accent)}\n"
    ".bars .best em{font-weight:400}\n"
    ".wrong{color:var(--bad)}\n"
    ".blocks{display:grid;gap:1rem 2rem;align-content:start;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,calc(var(--n)*5.4rem)),1fr))}\n"
    ".heads{display:grid;gap:.7rem;grid-template-columns:repeat(var(--n),minmax(0,1fr))}\n"
    ".heads figcaption{margin-top:.2rem;font-size:.66rem;line-height:1.3}\n"
    ".map{transition:transform .15s}\n"
    ".map:hover{transform:scale(1.9);position:relative;z-index:1;box-shadow:0 .4rem 1.6rem #0009}\n"
    ".map use{opacity:.8}\n"
    ".map .over{opacity:.4;fill:var(--night)}\n"
    "#grid{fill:none;stroke:#fff;stroke-opacity:.1;vector-effect:non-scaling-stroke}\n"
    "@media(max-width:62rem){article{grid-template-columns:minmax(0,1fr)}"
    ".answer{position:static;grid-template-columns:minmax(7rem,12rem) minmax(0,1fr)}}\n"
    "@media(max-width:40rem){.heads{grid-template-columns:repeat(4,minmax(0,1fr))}"
    ".answer{grid-template-columns:minmax(0,1fr)}.answer .picture{width:9rem}.map:hover{transform:none}}\n"
    "@media(prefers-reduced-motion){.map{transition:none}html{scroll-behavior:auto}}\n"
    "@media print{article{break-inside:avoid}}\n";

/* The more of a head's attention a patch has, the less is seen of the picture under it. */
void sheet_style(nn_buffer *out)
{
    nn_buffer_printf(out, "<style>\n%s", rules);
    for (int i = 0; i < SHEET_STEPS; i++) {
        double value = (double)i / (SHEET_STEPS - 1);
        scale_colour c = scale_at(value);
        nn_buffer_printf(out, ".h%d{fill:#%02x%02x%02x;fill-opacity:%.2f}\n", i, c.red, c.green, c.blue,
                         0.25 + 0.7 * value);
    }
    for (int i = 1; i <= SHEET_INK; i++) nn_buffer_printf(out, ".i%d{fill-opacity:%.2f}\n", i, (double)i / SHEET_INK);
    nn_buffer_puts(out, "</style>\n");
}
