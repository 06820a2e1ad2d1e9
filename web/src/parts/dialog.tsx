// A modal dialog on the browser's own <dialog>: it keeps the focus inside, closes with Escape and
// gives the focus back.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} aria-label={title} onClose={onClose}>
      <header class="dialog-head">
        <h2>{title}</h2>
        <button type="button" class="button icon" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </header>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}
