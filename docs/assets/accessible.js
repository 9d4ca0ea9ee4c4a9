/* Names and focus that the theme leaves out: parts that scroll can be reached with the keyboard. */
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, math[display=block]")) part.tabIndex = 0;
});
