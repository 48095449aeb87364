// Keys as the user means them.

/**
 * Whether a key belongs to an input method that composes a word, as Enter does when it confirms one.
 * Safari ends the composition before the key that ended it: there the key has the code 229.
 */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;
