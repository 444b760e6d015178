import './style/all.css';
import { render } from 'preact';
import { App } from './app';
import { startTheme } from './ui/theme';

startTheme();
render(<App />, document.getElementById('app')!);
performance.mark('dex-interactive'); // everything can be used from here on; the test of weight reads it
