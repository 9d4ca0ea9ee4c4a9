// Search runs in a worker, which browsers refuse to pages that are opened from a folder. There
// the script of the worker runs in a hidden frame instead; from a server nothing changes.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script")
          Object.assign(script, { src: source, onload: resolve, onerror: reject })
          inside.document.head.append(script)
        })
      inside.importScripts = (...sources) => Promise.all(sources.map(load))
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside = inside
      this.ready = load(url)
    }

    postMessage(data) {
      const send = () => this.inside.dispatchEvent(new MessageEvent("message", { data }))
      this.ready.then(send)
    }
  }
}
