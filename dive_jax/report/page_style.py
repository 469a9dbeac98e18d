"""How a report page looks: one style sheet, for light and dark screens, wide and narrow ones."""

LIGHT = {
    "bg": "#f7f7f5",
    "card": "#ffffff",
    "ink": "#1d2430",
    "soft": "#565e6b",
    "line": "#dfe2e7",
    "accent": "#1f5fbf",
    "good": "#17693f",
    "bad": "#ad2e1d",
    "hit": "#e9f5ee",
    "note": "#fff4d9",
    "s0": "#1f5fbf",
    "s1": "#565e6b",
    "s2": "#b35c15",
    "s3": "#16796a",
    "s4": "#8a3fa8",
    "s5": "#ad2e1d",
}
"""Colours on a light screen: grounds (bg, card, hit, note), inks, and s0 to s5 for lines."""

DARK = {
    "bg": "#12151a",
    "card": "#1b2027",
    "ink": "#e7e9ed",
    "soft": "#a7afbb",
    "line": "#353c47",
    "accent": "#86b4ff",
    "good": "#72d39d",
    "bad": "#ff9d8d",
    "hit": "#1a3026",
    "note": "#3a3016",
    "s0": "#86b4ff",
    "s1": "#a7afbb",
    "s2": "#f0a860",
    "s3": "#5fcfb5",
    "s4": "#d39fe9",
    "s5": "#ff9d8d",
}
"""The same on a dark one."""

SERIES = 6
"""Colours for lines; they repeat after these."""

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--bg);color:var(--ink);overflow-wrap:anywhere;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",Helvetica,Arial,sans-serif}
main,header,footer{max-width:1120px;margin:0 auto;padding:0 20px}
header{padding-top:32px}
h1{font-size:30px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:21px;line-height:1.3;margin:0 0 4px}
h3{font-size:16px;line-height:1.35;margin:20px 0 8px}
p{margin:0 0 10px}
.soft,figcaption small,footer{color:var(--soft)}
.lead{max-width:75ch;margin-bottom:14px}
nav{display:flex;flex-wrap:wrap;gap:2px 18px;margin:14px 0 4px}
nav a,.skip{color:var(--accent);padding:4px 0}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--accent);
outline-offset:2px}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;
padding:22px 24px;margin:16px 0}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(225px,1fr));gap:12px;
margin:18px 0 0}
.figure{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 18px}
.figure p{margin:0}
.figure .value{font-size:28px;line-height:1.25;font-weight:650;font-variant-numeric:tabular-nums}
.figure .label{font-weight:600;font-size:14px}
.figure .note{color:var(--soft);font-size:14px}
.good{color:var(--good)}
.bad{color:var(--bad)}
.warning{background:var(--note);border:1px solid var(--line);border-left:4px solid var(--bad);
border-radius:8px;padding:10px 14px;margin:14px 0 0}
.scroll{overflow-x:auto;margin:10px 0}
.tables{display:flex;flex-wrap:wrap;gap:0 44px}
.tables .scroll{min-width:0}
table{overflow-wrap:normal;border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:15px}
caption{text-align:left;color:var(--soft);font-size:14px;padding:0 0 6px}
th,td{padding:7px 13px 7px 0;text-align:right;vertical-align:top;
border-bottom:1px solid var(--line);font-weight:400}
th:last-child,td:last-child{padding-right:2px}
th.left,td.left{text-align:left}
thead th{color:var(--soft);font-size:13px;line-height:1.3;vertical-align:bottom;max-width:9.5em}
.strong th,.strong td{font-weight:650}
.dev{color:var(--soft);font-weight:400;white-space:nowrap}
td{white-space:nowrap}
td.left{white-space:normal}
.charts{display:grid;gap:18px 28px;margin:14px 0 6px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr))}
figure{margin:0;min-width:0;max-width:460px}
figcaption{font-size:15px;line-height:1.35;margin-bottom:4px}
figcaption b{font-weight:650}
figcaption small{font-size:13px;display:block}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:12.5px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg .name{fill:var(--c);font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:4px}
svg .grid{stroke:var(--line);stroke-width:1}
svg .axis{stroke:var(--soft);stroke-width:1}
svg .frozen{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 4}
svg .line{fill:none;stroke:var(--c);stroke-width:2.4;stroke-linejoin:round;stroke-linecap:round}
svg .seed{fill:none;stroke:var(--c);stroke-width:1;opacity:.5}
svg .bar{stroke:var(--c);stroke-width:1.5}
svg .dot{fill:var(--c);stroke:var(--card);stroke-width:1}
.key{display:flex;flex-wrap:wrap;gap:0 14px;font-size:13px;color:var(--soft)}
.key i{display:inline-block;width:16px;height:3px;border-radius:2px;background:var(--c);
margin-right:6px;vertical-align:middle}
details{margin:12px 0 0}
summary{cursor:pointer;color:var(--accent);padding:6px 0}
.example{border-top:1px solid var(--line);margin:0}
.example summary{color:var(--ink);padding:10px 0;display:grid;grid-template-columns:1.3em 1fr}
.example summary::-webkit-details-marker{display:none}
.example summary::before{content:"+";color:var(--accent);font-weight:650;grid-row:span 2}
.example[open] summary::before{content:"−"}
.example[open]{padding-bottom:14px}
.query{font-size:16px;line-height:1.4;font-weight:600}
.meta{font-size:14px;color:var(--soft);display:flex;flex-wrap:wrap;gap:0 14px}
.meta>*{min-width:0}
.missed{font-size:14px;color:var(--soft);margin:8px 0 0}
.meta b{color:var(--ink);font-weight:650;font-variant-numeric:tabular-nums}
.meta .good{color:var(--good)}
.meta .bad{color:var(--bad)}
.two{display:grid;gap:4px 28px;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr))}
.two>div{min-width:0}
.two h4{font-size:14px;margin:6px 0 4px;color:var(--soft);font-weight:600}
ol.hits{list-style:none;margin:0;padding:0}
.hits li{display:grid;grid-template-columns:1.5em minmax(0,1fr);padding:7px 8px;border-radius:8px;
overflow:clip}
.hits li.yes{background:var(--hit)}
.hits .rank{color:var(--soft);font-variant-numeric:tabular-nums}
.hits p{margin:0}
.hits .title{font-weight:600;font-size:15px;line-height:1.35}
.hits .text{font-size:14px;line-height:1.45}
.hits .meta{font-size:13px}
.badge{color:var(--good);font-weight:650}
.kv{display:grid;gap:0 32px;margin:6px 0 0;
grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.kv div{display:grid;grid-template-columns:minmax(0,12.5em) minmax(0,1fr);gap:4px 14px;
padding:6px 0;border-bottom:1px solid var(--line);font-size:15px}
.kv dt{color:var(--soft)}
.kv dd{margin:0}
.kv small{display:block;color:var(--soft);font-size:13px;line-height:1.4}
code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
footer{font-size:14px;padding-top:4px;padding-bottom:36px}
@media (max-width:640px){
main,header,footer{padding-left:12px;padding-right:12px}
header{padding-top:20px}
h1{font-size:25px}
section{padding:16px 12px}
.figures{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}
.figure{padding:10px 12px}
.figure .value{font-size:22px}
table{font-size:13px}
thead th{font-size:12px}
th,td{padding-right:5px}
.dev{display:block;font-size:12px}
.hits .text{display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:3;overflow:hidden}
.kv div{grid-template-columns:minmax(0,9.5em) minmax(0,1fr)}
}
@media print{section,.example,figure{break-inside:avoid}nav{display:none}}
"""


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


def sheet() -> str:
    """Returns the style sheet; it names no file and no address."""
    lines = "".join(f".s{index}{{--c:var(--s{index})}}" for index in range(SERIES))
    return (
        f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
        f"{_RULES}{lines}"
    )
