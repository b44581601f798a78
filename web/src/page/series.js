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
 * @property {string} name the model and its settings
 * @property {string} task
 * @property {Measure} measure
 * @property {number} color the number of the model's color
 * @property {number} mark the number of its mark, which differs from those of the model's other curves
 * @property {Map<string, Point>} points by number of latent tokens
 */

export const MOST_CURVES = 10; // in one plot
const NORMAL = 1.959964; // the 97.5% quantile of the normal distribution

/** The curves that are shown, and the colors of the models, which never change. */
export class SeriesList {
  /** @type {Series[]} */
  all = [];
  /** @type {string[]} the models by the number of their color */
  colors = [];

  /**
   * Add a curve with the color of its model.
   *
   * @param {Omit<Series, "color" | "mark">} entry
   */
  add(entry) {
    if (!this.colors.includes(entry.model)) this.colors.push(entry.model);
    const others = this.of(entry.task, entry.measure).filter(({ model }) => model === entry.model);
    const marks = [...others.keys(), others.length];
    const mark = marks.find((candidate) => others.every((other) => other.mark !== candidate)) ?? 0;
    const series = { ...entry, color: this.colors.indexOf(entry.model), mark };
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
export function seriesOf({ model, task, measure, order, candidates, points }) {
  const k = order === "left_to_right" || order === "uniform" ? "" : String(candidates);
  const name = `${seriesName(model, order, k)} (stored)`;
  return { model, name, task, measure, points: new Map(points.map((point) => [`${point.latents}`, point])) };
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
