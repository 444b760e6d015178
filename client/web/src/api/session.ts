import { Store } from './store';

// The API key: in memory, and in local storage only where the user has ticked that.
const storageKey = 'dex.api_key';

function stored(): string {
  try {
    return localStorage.getItem(storageKey) ?? '';
  } catch {
    return ''; // storage is switched off
  }
}

export const apiKey = new Store<string>(stored());
// The gateway has refused a call for want of a key: the shell opens the dialog.
export const keyWanted = new Store<boolean>(false);

export function keyIsStored(): boolean {
  return stored() !== '';
}

export function takeKey(key: string, remember: boolean) {
  try {
    if (remember && key) localStorage.setItem(storageKey, key);
    else localStorage.removeItem(storageKey);
  } catch {
    // Then it lives as long as the page.
  }
  apiKey.set(key);
  keyWanted.set(false);
}

export function authorization(): Record<string, string> {
  const key = apiKey.get();
  return key ? { authorization: `Bearer ${key}` } : {};
}
