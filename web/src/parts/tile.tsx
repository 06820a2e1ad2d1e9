// One big number: label, figure with its unit, and what it stands for.
import type { ComponentChildren } from "preact";
import type { Amount } from "../format";
import { Num } from "./basic";

interface TileProps {
  id?: string;
  label: string;
  amount: Amount;
  note?: ComponentChildren;
}

export function Tile({ id, label, amount, note }: TileProps) {
  return (
    <div class="tile" data-tile={id ?? label}>
      <p class="tile-label">{label}</p>
      <p class="tile-figure">
        <Num amount={amount} />
      </p>
      <p class="tile-note">{note}</p>
    </div>
  );
}
