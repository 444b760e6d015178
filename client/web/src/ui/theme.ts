import { Store } from '@/api/store';

export type Choice = 'auto' | 'light' | 'dark';
const storageKey = 'dex.theme';

function stored(): Choice {
  try {
    const value = localStorage.getItem(storageKey);
    return value === 'light' || value === 'dark' ? value : 'auto';
  } catch {
    return 'auto';
  }
}

export const themeChoice = new Store<Choice>('auto');
export const theme = new Store<'light' | 'dark'>('light'); // what is shown; charts draw anew when it changes

export function startTheme() {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    const choice = themeChoice.get();
    const shown = choice === 'auto' ? (system.matches ? 'dark' : 'light') : choice;
    document.documentElement.dataset.theme = shown;
    theme.set(shown);
  };
  themeChoice.set(stored());
  system.addEventListener('change', apply);
  themeChoice.subscribe(apply);
  apply();
}

export function chooseTheme(choice: Choice) {
  try {
    localStorage.setItem(storageKey, choice);
  } catch {
    // It holds until the page is closed.
  }
  themeChoice.set(choice);
}

export const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
