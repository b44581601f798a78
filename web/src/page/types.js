/** The JSON that the page receives, as docs/watching.md describes it, and the state of a decode. */

/** @typedef {[token: number, probability: number]} Prediction */

/**
 * @typedef {object} StartSettings
 * @property {number | string | null} latents
 * @property {number | string} candidates
 * @property {string} order
 * @property {number} temperature
 * @property {number} seed
 * @property {boolean} [off_distribution] left out if it is false
 */

/**
 * @typedef {object} Board how cells are drawn, and the given ones
 * @property {string} kind
 * @property {number} [side] cells per row of a Sudoku
 * @property {number[]} [box] rows and columns of a box of a Sudoku
 * @property {number} columns
 * @property {string[]} heads
 * @property {string[]} signs
 * @property {(number | null)[]} tokens
 * @property {string[]} words
 */

/**
 * @typedef {object} StartOnly
 * @property {string} model
 * @property {string} method
 * @property {string} task
 * @property {StartSettings} settings
 * @property {boolean} dial
 * @property {number} all_processed
 */
/** @typedef {Board & StartOnly} Start everything known before the first step */

/**
 * @typedef {object} Frame a step
 * @property {number} step
 * @property {[cell: number, token: number][]} chosen
 * @property {number[]} candidates
 * @property {number[]} latents
 * @property {Record<string, Prediction[]>} beliefs
 * @property {number} processed
 * @property {number} all_processed
 */

/**
 * @typedef {object} End the verdict and the cost
 * @property {boolean} right
 * @property {string[]} wrong
 * @property {number[]} broken
 * @property {number} processed
 * @property {number} seconds
 */

/** @typedef {{ start: Start, frames: Frame[], end: End }} Trace */
/** @typedef {{ start: Start | null, frames: Frame[], end: End | null }} Incoming an incomplete trace */
/** @typedef {{ start: Board, frames: Frame[], end: End | null }} Drawn what a lane draws */

/**
 * @typedef {object} Recorded the decodes in the page
 * @property {Trace[]} traces none, one, or two to compare
 * @property {string} caption how the puzzle was chosen
 * @property {string} reason why the page cannot decode, or ""
 */

/**
 * @typedef {object} ModelEntry a model in the page
 * @property {string} name
 * @property {string} task
 * @property {string} kind
 * @property {string} method
 * @property {number} parameters
 * @property {boolean} dial
 * @property {number | null} side
 * @property {[number, number] | null} box
 * @property {boolean} left_to_right
 * @property {boolean} continues_prefix
 * @property {number} candidates
 * @property {{ puzzle: string, label: string, caption: string }[]} examples
 */

/**
 * @typedef {object} Settings the settings of a decode, as in a request
 * @property {string} model
 * @property {string} [latents] left out if the model fixes it
 * @property {string} candidates
 * @property {import("../engine/decoding.js").OrderName} order
 */

/** @typedef {Settings & { puzzle: string, temperature: number, seed: string, refresh?: boolean }} Request */

/**
 * @typedef {{ kind: "idle" }
 *   | { kind: "loading", previous: Trace | null, incoming: Incoming, control: AbortController | null }
 *   | { kind: "playing", trace: Trace }
 *   | { kind: "fault", message: string }} Decode
 * Idle: nothing is decoded. Loading: waiting or decoding, while the previous trace is drawn.
 * Playing: a complete trace is drawn.
 */

/**
 * @typedef {object} PageRecord what the page shows of a bundled model (trace/frozen.py)
 * @property {string} model
 * @property {number} givens
 * @property {number} seed
 * @property {{ states: number, wrong: number, mended: number, mended_by_one: number,
 *   spoiled: number }} counts
 * @property {{ puzzle: string, target: number, latent: number, others: number[], answer: number,
 *   mistake: number, probability: number, helpful: number }} cell
 * @property {{ puzzles: string[], solved: Record<string, boolean[]> }} race
 */

/** @typedef {AsyncIterable<[name: string, data: unknown]>} Events `start`, `frame` per step, `end` */

export {};
