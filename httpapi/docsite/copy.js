// Adds a button to each sample that copies it. Pages are whole without it.
if (navigator.clipboard) for (const sample of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(sample.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  const box = document.createElement("div");
  box.className = "sample";
  sample.replaceWith(box);
  box.append(sample, button);
}
