// One file, without anything from elsewhere.
#include "cli/serve/page.hpp"

namespace mhla::cli {

const std::string_view kServePage = R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mhla serve</title>
<style>
:root { color-scheme: light dark; --ink: #1b2733; --soft: #64748b; --paper: #f6f7f9; --card: #fff; --line: #d8dee6;
  --accent: #0f766e; --answer: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #93a1b1; --paper: #10161c; --card: #18212a; --line: #2d3a47; --accent: #2dd4bf;
    --answer: #7cc0ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 32px 20px 48px; }
header { display: flex; align-items: baseline; gap: 12px; margin-bottom: 20px; }
h1 { font-size: 22px; margin: 0; }
#model { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px; margin-bottom: 16px; }
textarea { width: 100%; min-height: 110px; resize: vertical; border: 0; outline: 0; background: none; color: inherit;
  font: 16px/1.6 ui-serif, Georgia, serif; }
.prompt:focus-within { border-color: var(--accent); }
.options { display: grid; grid-template-columns: repeat(4, 1fr); gap: 12px 16px; }
@media (max-width: 560px) { .options { grid-template-columns: repeat(2, 1fr); } }
label { font-size: 13px; color: var(--soft); }
input { width: 100%; margin-top: 3px; padding: 6px 8px; border: 1px solid var(--line); border-radius: 6px;
  background: var(--paper); color: var(--ink); font: inherit; font-size: 15px; }
input:focus-visible, button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.actions { display: flex; align-items: center; gap: 10px; margin-bottom: 16px; }
button { padding: 8px 20px; border-radius: 8px; border: 1px solid var(--accent); background: var(--accent);
  color: var(--card); font: inherit; font-weight: 600; cursor: pointer; }
button.plain { background: none; color: var(--ink); border-color: var(--line); }
button:disabled { opacity: .45; cursor: default; }
#status { color: var(--soft); font-size: 14px; }
#status.error { color: #c2410c; }
#text { min-height: 120px; white-space: pre-wrap; overflow-wrap: anywhere; font: 17px/1.65 ui-serif, Georgia, serif; }
#answer { color: var(--answer); }
</style>
</head>
<body>
<main>
<header><h1>mhla serve</h1><span id="model"></span></header>
<form id="form">
<section class="prompt"><textarea id="prompt" aria-label="Prompt" placeholder="How the text begins" autofocus>It was a</textarea></section>
<section class="options">
<label>Tokens<input id="max_tokens" type="number" min="1" step="1" value="200"></label>
<label>Temperature<input id="temperature" type="number" min="0" step="any" value="0.8"></label>
<label>Top p<input id="top_p" type="number" min="0" max="1" step="any" value="1"></label>
<label>Top k (0: all)<input id="top_k" type="number" min="0" step="1" value="0"></label>
<label>Min p<input id="min_p" type="number" min="0" max="1" step="any" value="0"></label>
<label>Repetition<input id="repetition_penalty" type="number" min="0.1" step="any" value="1"></label>
<label>Stop before<input id="stop" type="text"></label>
<label>Seed<input id="seed" type="number" min="0" step="1" placeholder="any"></label>
</section>
<div class="actions">
<button id="go">Go on</button>
<button id="halt" type="button" class="plain" disabled>Stop</button>
<span id="status" role="status"></span>
</div>
</form>
<section id="text"><span id="begin"></span><span id="answer"></span></section>
</main>
<script>
"use strict";
const at = id => document.getElementById(id);
let running = null;

const say = (text, failed = false) => { at("status").textContent = text; at("status").className = failed ? "error" : ""; };

function asked() {
  const body = {prompt: at("prompt").value, stream: true, stream_options: {include_usage: true}};
  for (const name of ["max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"])
    if (at(name).value !== "") body[name] = Number(at(name).value);
  if (at("stop").value !== "") body.stop = at("stop").value;
  return body;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
  }
}

async function answer() {
  const body = asked(), start = performance.now();
  let reason = "", usage = null;
  running = new AbortController();
  at("go").disabled = true; at("halt").disabled = false;
  at("begin").textContent = body.prompt; at("answer").textContent = "";
  say("reading the prompt ..");
  try {
    const response = await fetch("v1/completions", {method: "POST", headers: {"Content-Type": "application/json"},
                                                     body: JSON.stringify(body), signal: running.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const part = JSON.parse(data);
      if (part.error) throw new Error(part.error.message);
      if (part.usage) usage = part.usage;
      for (const choice of part.choices) {
        at("answer").textContent += choice.text;
        reason = choice.finish_reason || reason;
      }
      say("writing ..");
    }
    const seconds = (performance.now() - start) / 1000, count = usage.completion_tokens;
    say(`${usage.prompt_tokens} + ${count} tokens in ${seconds.toFixed(1)} s, ${(count / seconds).toFixed(0)} per second (${reason})`);
  } catch (error) {
    if (error.name === "AbortError") say("stopped"); else say(error.message, true);
  }
  running = null;
  at("go").disabled = false; at("halt").disabled = true;
}

at("form").addEventListener("submit", event => { event.preventDefault(); if (!running) answer(); });
at("halt").addEventListener("click", () => running && running.abort());
at("prompt").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
fetch("v1/models").then(response => response.json()).then(list => { at("model").textContent = list.data[0].id; });
</script>
</body>
</html>
)page";

}  // namespace mhla::cli
