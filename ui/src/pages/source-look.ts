// How a source is, in a word: what the server says of it, with a colour and an icon.
import type { Schemas } from '../api/client';

export interface SourceLook {
  tone: string;
  icon: string;
  says: string;
  about: string;
}

export function sourceLook(source: Pick<Schemas['SourceView'], 'enabled' | 'state'>): SourceLook {
  const { enabled, state } = source;
  if (!enabled) return { tone: 'tone-hold', icon: 'pause', says: 'paused', about: 'No message is taken: messages stay in the broker.' };
  if (state.isConnected && state.error) return { tone: 'tone-wait', icon: 'clock', says: 'waits', about: 'A message cannot be taken now. It is tried again, and those behind it wait.' };
  if (state.isConnected) return { tone: 'tone-good', icon: 'check', says: 'connected', about: 'This server reads from the broker.' };
  if (state.error) return { tone: 'tone-bad', icon: 'warning', says: 'not connected', about: 'This server cannot read from the broker. It tries again by itself.' };
  return { tone: 'tone-ready', icon: 'queue', says: 'connecting', about: 'This server has not reached the broker yet.' };
}
