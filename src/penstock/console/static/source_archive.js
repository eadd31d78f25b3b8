// The archive of a source, as the gateway takes it: a zip file without compression.

const LOCAL = 0x04034b50;
const ENTRY = 0x02014b50;
const END = 0x06054b50;
const VERSION = 20;
const UTF8 = 0x0800;
const DAY_ONE = 0x21; // the first day of 1980
const FILES_MAX = 20_000;
const BYTES_MAX = 64 * 1024 * 1024;

const CRC = new Uint32Array(256).map((_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

/** Return the CRC-32 of bytes. */
export function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** Return the paths of chosen files in the folder of an application; `app` is `module:name`. */
export function pathsIn(files, app) {
  const kept = [...files]
    .map((file) => ({ file, parts: (file.webkitRelativePath || file.name).split("/") }))
    .filter(({ parts }) => !parts.some((part) => part.startsWith(".") || part === "__pycache__"));
  const tops = app.split(/[=,]/).map((part) => part.split(":")[0].split(".")[0]);
  const isTop = ({ parts }) =>
    tops.includes(parts[0]) || (parts.length === 1 && tops.some((top) => parts[0] === `${top}.py`));
  const inside = kept.some(isTop) || kept.some(({ parts }) => parts.length === 1);
  return kept.map(({ file, parts }) => ({ file, path: parts.slice(inside ? 0 : 1).join("/") }));
}

/** Return the archive of files, each `{path, file}`; throw an error that says why there can be none. */
export async function archiveOf(files) {
  const size = files.reduce((sum, { file }) => sum + file.size, 0);
  if (!files.length) throw new Error("No file is chosen, or all are hidden files.");
  if (files.length > FILES_MAX) throw new Error(`An archive has at most ${FILES_MAX} files.`);
  if (size > BYTES_MAX) throw new Error("The files have more than 64 MiB; choose the folder of the source only.");
  const parts = [];
  const entries = [];
  let offset = 0;
  for (const { path, file } of files) {
    const name = new TextEncoder().encode(path);
    const content = new Uint8Array(await file.arrayBuffer());
    const facts = { name, offset, size: content.length, crc: crc32(content) };
    const head = record(LOCAL, facts);
    parts.push(head, name, content);
    entries.push(record(ENTRY, facts), name);
    offset += head.length + name.length + content.length;
  }
  const length = entries.reduce((sum, part) => sum + part.length, 0);
  return new Blob([...parts, ...entries, end(files.length, length, offset)]);
}

function record(kind, { name, offset, size, crc }) {
  const common = [[2, VERSION], [2, UTF8], [2, 0], [2, 0], [2, DAY_ONE], [4, crc], [4, size], [4, size], [2, name.length], [2, 0]];
  const more = [[2, 0], [2, 0], [2, 0], [4, 0], [4, offset]];
  return kind === LOCAL ? numbers([[4, kind], ...common]) : numbers([[4, kind], [2, VERSION], ...common, ...more]);
}

const end = (files, length, offset) =>
  numbers([[4, END], [2, 0], [2, 0], [2, files], [2, files], [4, length], [4, offset], [2, 0]]);

/** Return numbers as bytes, the lowest first; each is `[width, value]`. */
function numbers(fields) {
  const bytes = new Uint8Array(fields.reduce((sum, [width]) => sum + width, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const [width, value] of fields) {
    if (width === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += width;
  }
  return bytes;
}
