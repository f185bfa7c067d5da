// Finding words in a terminal and what has scrolled out of it.

import { $ } from './dom.js';
import { say } from './sentences.js';

export class Find {
  // term gives the terminal that is shown, or null.
  constructor(term) {
    this.term = term;
    this.at = -1;
    $('term-find-open').addEventListener('click', () => { if ($('term-find').hidden) this.open(); else this.close(); });
    $('term-find').addEventListener('submit', (e) => { e.preventDefault(); this.step(-1); });
    $('term-find-next').addEventListener('click', () => this.step(1));
    $('term-find-text').addEventListener('input', () => { this.at = -1; this.step(-1); });
    $('term-find').addEventListener('keydown', (e) => {
      if (e.key === 'Escape') { e.stopPropagation(); this.close(); } else if (e.key === 'Enter' && e.shiftKey) { e.preventDefault(); this.step(1); }
    });
  }

  open() {
    $('term-find').hidden = false;
    $('term-find-open').setAttribute('aria-expanded', 'true');
    $('term-find-text').focus();
    $('term-find-text').select();
  }

  close() {
    const focused = $('term-find').contains(document.activeElement);
    $('term-find').hidden = true;
    $('term-find-open').setAttribute('aria-expanded', 'false');
    $('term-find-count').textContent = '';
    this.term()?.clearSelection();
    this.at = -1;
    if (focused) $('term-find-open').focus();
  }

  // step goes to the place before (-1) or after (1) the one that is marked; the last one is first.
  step(by) {
    const term = this.term();
    const word = $('term-find-text').value;
    if (!term || !word) {
      term?.clearSelection();
      $('term-find-count').textContent = '';
      return;
    }
    const hits = places(term, word);
    $('term-find-count').textContent = hits.length ? '' : say.notFound;
    if (!hits.length) {
      term.clearSelection();
      return;
    }
    this.at = this.at < 0 ? hits.length - 1 : (this.at + by + hits.length) % hits.length;
    const hit = hits[this.at];
    $('term-find-count').textContent = say.found(this.at + 1, hits.length);
    term.select(hit.col, hit.row, hit.cells);
    term.scrollToLine(Math.max(0, hit.row - Math.floor(term.rows / 2)));
  }
}

// places are where a word is, whatever its case, also over the end of a row that was wrapped.
function places(term, word) {
  const { active } = term.buffer;
  const wanted = word.toLowerCase();
  const out = [];
  let text = '';
  let cells = []; // of each character: its row, column and how many cells come before it
  let count = 0;
  const search = () => {
    const low = text.toLowerCase();
    if (low.length !== text.length) return; // letters whose small form is longer
    for (let i = low.indexOf(wanted); i >= 0; i = low.indexOf(wanted, i + wanted.length)) {
      const [row, col, first] = cells[i];
      const last = cells[i + wanted.length - 1];
      out.push({ row, col, cells: last[2] - first + last[3] });
    }
  };
  for (let row = 0; row < active.length; row++) {
    const line = active.getLine(row);
    if (!line.isWrapped) {
      search();
      text = '';
      cells = [];
      count = 0;
    }
    for (let col = 0; col < term.cols; col++) {
      const cell = line.getCell(col);
      const width = cell?.getWidth() ?? 0;
      if (!width) continue;
      const chars = cell.getChars() || ' ';
      for (let i = 0; i < chars.length; i++) cells.push([row, col, count, width]);
      text += chars;
      count += width;
    }
  }
  search();
  return out;
}
