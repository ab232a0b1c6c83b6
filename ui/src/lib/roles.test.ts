import { describe, expect, it } from 'vitest';
import { roleText } from './roles';

describe('refusals', () => {
  it('name the role that is missing, not a right or a signal', () => {
    expect(roleText('the right `operate` is needed')).toBe('The role operator is needed.');
    expect(roleText('RETRY_RUN needs the role engineer')).toBe('The role engineer is needed.');
    expect(roleText('cancelling needs the role operator')).toBe('The role operator is needed.');
    expect(roleText('ada started the run; another person must do this')).toBe('ada started the run; another person must do this');
  });
});
