/* Sets the chosen theme before the first paint; the only script that is no module. */
{
  const chosen = localStorage.getItem("penstock-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
