/** The curves of the tab Curve: their points, their names and their looks. */

import { shortName } from "./dom.js";
import { orderName } from "./settings.js";

/** @typedef {"sampled" | "solved"} Measure boards from an empty grid at temperature 1; puzzles at 0 */
/**
 * @typedef {object} Point the samples of one number of latent tokens so far
 * @property {number | string} latents
 * @property {number} done
 * @property {number} of
 * @property {number} right
 * @property {number} low
 * @property {number} high
 * @property {number} processed
 * @property {number} relative
 */
/**
 * @typedef {object} StoredCurve
 * @property {string} model
 * @property {string} method
 * @property {string} sha256
 * @property {string} task
 * @property {Measure} measure
 * @property {string} order
 * @property {number} candidates
 * @property {Point[]} points
 */
/** @typedef {{ stored: StoredCurve[], puzzles: Record<string, string[]> }} Curves */
/**
 * @typedef {object} Series
 * @property {string} model
 * @property {string} method whose color the curve has, without the size of its window
 * @property {string} name the model and its settings
 * @property {string} task
 * @property {Measure} measure
 * @property {number} mark the number of its mark, which differs from those of the method's other curves
 * @property {Map<string, Point>} points by number of latent tokens
 */

export const MOST_CURVES = 10; // in one plot
const NORMAL = 1.959964; // the 97.5% quantile of the normal distribution

/** The curves that are shown. */
export class SeriesList {
  /** @type {Series[]} */
  all = [];

  /**
   * Add a curve with a mark of its own among those of its method.
   *
   * @param {Omit<Series, "mark">} entry
   */
  add(entry) {
    const method = entry.method.replace(/-\d+$/, "");
    const others = this.of(entry.task, entry.measure).filter((other) => other.method === method);
    const marks = [...others.keys(), others.length];
    const mark = marks.find((candidate) => others.every((other) => other.mark !== candidate)) ?? 0;
    const series = { ...entry, method, mark };
    this.all.push(series);
    return series;
  }

  /** @param {Series[]} series */
  remove(...series) {
    this.all = this.all.filter((other) => !series.includes(other));
  }

  /**
   * Return the curves of one plot.
   *
   * @param {string} task
   * @param {Measure} measure
   */
  of(task, measure) {
    return this.all.filter((series) => series.task === task && series.measure === measure);
  }
}

/**
 * Return a stored curve as a series.
 *
 * @param {StoredCurve} curve
 */
export function seriesOf({ model, method, task, measure, order, candidates, points: stored }) {
  const k = order === "left_to_right" || order === "uniform" ? "" : String(candidates);
  const name = `${seriesName(model, order, k)} (stored)`;
  const points = new Map(stored.map((point) => [`${point.latents}`, point]));
  return { model, method, name, task, measure, points };
}

/**
 * Return the name of a curve.
 *
 * @param {string} model
 * @param {string} order
 * @param {string} k "" if the order ignores it
 * @param {string} [seed]
 */
export function seriesName(model, order, k, seed = "0") {
  const settings = [orderName(order), ...(k ? [`k = ${k}`] : []), ...(seed === "0" ? [] : [`seed ${seed}`])];
  return [shortName(model), ...settings].join(", ");
}

/**
 * Return Wilson's 95% interval of a share of samples, as evaluation/intervals.py.
 *
 * @param {number} share
 * @param {number} count
 */
export function wilson(share, count) {
  const z = NORMAL;
  const scale = 1 + z ** 2 / count;
  const middle = (share + z ** 2 / (2 * count)) / scale;
  const half = (z / scale) * Math.sqrt((share * (1 - share)) / count + z ** 2 / (4 * count ** 2));
  return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}
