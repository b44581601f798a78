/** An error that is shown to the person in one line. */
export class Fault extends Error {}
