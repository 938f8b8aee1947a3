(() => {
  const live = document.getElementById("live");
  const look = async () => {
    try {
      const answer = await fetch("/version", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== document.body.dataset.version) location.reload();
      live.textContent = "Live: this page reloads itself when a run goes on.";
    } catch {
      live.textContent = "The server has stopped; this is the last state.";
    }
  };
  setInterval(look, 2000);
})();
