/** The address of the laboratory: its state, for a link. */

/** @typedef {Record<string, string>} Entries */

const START = "#lab?";

/**
 * Return the entries of an address, or null if it is not one of the laboratory.
 *
 * @param {string} hash
 * @returns {Entries | null}
 */
export const readAddress = (hash) =>
  hash.startsWith(START) ? Object.fromEntries(new URLSearchParams(hash.slice(START.length))) : null;

/** @param {readonly string[]} names */
export const joinNames = (names) => names.map((name) => name.replaceAll(",", "%2C")).join();
/** @param {string} text of `joinNames` */
export const splitNames = (text) => text.split(",").map((name) => name.replaceAll("%2C", ","));

/**
 * Return the address that has these entries. Empty ones are left out.
 *
 * @param {Entries} entries
 */
export function writeAddress(entries) {
  const filled = Object.entries(entries).filter(([, value]) => value !== "");
  return START + new URLSearchParams(filled).toString().replaceAll("%2C", ",");
}
