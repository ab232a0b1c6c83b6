// What a person has typed or chosen in a view, kept in its address: a reload and a link that is shared show the same.
import { untrack } from 'svelte';
import { router } from './router.svelte';

/** Writes values to the address a moment after they have changed. Called while a component is made. */
export function keepInAddress(values: () => Record<string, string | number | null | undefined>) {
  $effect(() => {
    const wanted = values();
    // Not with each key: browsers allow only so many changes of an address.
    const timer = setTimeout(() => {
      const query = untrack(() => router.route.query);
      if (Object.entries(wanted).some(([name, value]) => (query.get(name) ?? '') !== String(value ?? ''))) router.set(wanted);
    }, 250);
    return () => clearTimeout(timer);
  });
}
